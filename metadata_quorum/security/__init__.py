"""Words and rules of access: ACLs, the authorizer, SCRAM users."""
