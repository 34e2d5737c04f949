package main

// Build is for the tests.
var Build = build
