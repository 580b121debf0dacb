"""The filter language: reads `state:failed type:mail.* run>5s` into conditions for the SQL function `job_page`."""
