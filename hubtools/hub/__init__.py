"""The client side of publishing: preflight, remote diff, one commit per repo, receipt."""
