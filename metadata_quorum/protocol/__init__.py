"""What a controller is asked, what it proposes to Raft, what it answers."""
