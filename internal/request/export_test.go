package request

// Kinds is how many kinds there are.
const Kinds = Kind(len(kinds))
