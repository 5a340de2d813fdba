"""The database: the only truth about jobs, trials and runs. The only package that imports sqlalchemy or alembic."""
