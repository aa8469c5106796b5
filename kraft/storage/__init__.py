"""A node's directories as `kraft storage format` leaves them and a start checks them."""
