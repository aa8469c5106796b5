"""What the cluster agrees on."""
