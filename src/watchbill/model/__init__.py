"""What things are: frozen values, states, the retry policy. No I/O, no clock."""
