"""What is worked out from the rows of finished runs, one subject a file; how it is shown is not decided here."""
