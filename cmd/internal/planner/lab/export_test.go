package lab

// Patience is how long a simulation may take.
const Patience = patience
