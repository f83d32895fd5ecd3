"""byrote inside other people's tools, one file each. They call the Python interface and compute nothing themselves."""
