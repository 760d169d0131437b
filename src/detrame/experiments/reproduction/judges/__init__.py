"""The judges of the paper's claims, by what they judge."""
