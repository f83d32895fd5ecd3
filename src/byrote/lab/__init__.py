"""Invented records and prose with known copies, and small models trained on them."""
