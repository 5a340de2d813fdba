"""The HTTP edge of the service: REST, event streams and the dashboard's files. It holds no business rules."""
