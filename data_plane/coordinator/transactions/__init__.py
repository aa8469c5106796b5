"""The coordinator of transactions, and the markers that end them."""
