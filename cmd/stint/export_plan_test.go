package main

// For the tests, which are outside of the package.
var ProgressLine = progressLine
