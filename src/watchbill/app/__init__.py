"""App, tasks and jobs as a program uses them."""
