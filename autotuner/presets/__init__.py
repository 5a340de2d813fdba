"""Models, devices and clusters that a user can name: data files with their sources, and this machine as a cluster."""
