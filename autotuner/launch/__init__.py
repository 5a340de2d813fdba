"""How a run's processes are started, as text: pure, nothing here starts anything."""
