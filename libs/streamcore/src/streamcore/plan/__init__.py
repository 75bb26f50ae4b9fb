"""Plan: what applications need on a cluster, what it costs, and the commands that create it."""
