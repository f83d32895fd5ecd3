"""What Python offers across products: runs of every kind, and the commands that write one."""
