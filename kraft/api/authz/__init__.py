"""Who may do what: the rights that each API asks for, and the authorizer that judges them."""
