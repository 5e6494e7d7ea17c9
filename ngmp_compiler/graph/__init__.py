"""Graph: planes, index maps, edges and groups, the vocabulary of all passes."""
