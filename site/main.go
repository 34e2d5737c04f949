// Command site makes a static site of the documents: pages that need nothing from
// elsewhere, with a search of their own, for wide screens and phones, light and
// dark.
//
//	go run ./site --out bin/site
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("out", "bin/site", "where the pages go")
	root := flag.String("root", ".", "the top of the repository")
	flag.Parse()
	n, err := build(*root, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("%d pages in %s\n", n, *out)
}
