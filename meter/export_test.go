package meter

// GCD is the greatest common divisor, as the arithmetic computes it.
var GCD = gcd
