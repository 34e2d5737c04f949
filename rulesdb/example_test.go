package rulesdb_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/stint-dev/stint/rulesdb"
	"github.com/stint-dev/stint/rulesource"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := rulesdb.Open("sqlite:"+filepath.Join(dir, "stint.db"), rulesdb.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	ctx := context.Background()
	if _, _, err := db.Migrate(ctx); err != nil { // makes the tables
		log.Fatal(err)
	}

	document := []byte(`{"rules": [{"name": "api", "key": ["ip"], "limits": ["100/m"]}]}`)
	revision, err := db.Publish(ctx, 0, rulesdb.Revision{Author: "anna", Name: "stint.json", Document: document})
	if err != nil {
		log.Fatal(err)
	}
	own := rulesource.Override{Rule: "api", Key: "192.0.2.7", Limits: []string{"1000/m"}, Author: "anna"}
	if _, _, err := db.SetOverride(ctx, own, 0); err != nil { // 0: it does not end
		log.Fatal(err)
	}

	held, err := db.Override(ctx, "api", "192.0.2.7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("revision %d of %s; %s has %s\n", revision.Number, revision.Name, held.Key, held.Limits[0])
	// Output:
	// revision 1 of stint.json; 192.0.2.7 has 1000/m
}
