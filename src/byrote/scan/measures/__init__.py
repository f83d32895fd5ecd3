"""What can be measured of a window: the contract, and one file for each further measure."""
