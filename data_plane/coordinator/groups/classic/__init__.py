"""Groups of the classic protocol: members wait for each other, their leader assigns."""
