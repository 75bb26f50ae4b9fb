"""Doctor: what would keep the applications from working here, and what mends it; read-only."""
