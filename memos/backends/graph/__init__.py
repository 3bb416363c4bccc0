"""The graph index on Neo4j."""
