"""A node's directories as `kraft storage format` writes them and a starting node checks them."""
