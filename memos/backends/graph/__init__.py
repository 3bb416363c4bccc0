"""The graph index: ladybug, embedded, and Neo4j."""
