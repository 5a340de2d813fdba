"""The worker: one loop of collect, decide, propose, launch; meets the API only in the database."""
