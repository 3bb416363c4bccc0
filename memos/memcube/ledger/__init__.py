"""The ledger: tables, transactions and row functions over SQLAlchemy."""
