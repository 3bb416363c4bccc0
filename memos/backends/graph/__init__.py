"""The graph index on Neo4j."""

__all__ = ["neo4j", "neo4j_client"]
