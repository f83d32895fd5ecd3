"""What happens to a window between text and row, one file a stage, in the order of `scan/pipeline.py`."""
