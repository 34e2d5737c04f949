package storecheck

// Names returns the names of the commands that a user needs: everywhere, and by
// where limits are kept.
func Names() (always, besides []string) {
	for _, c := range commands {
		always = append(always, c.name)
	}
	for _, list := range [][]command{inDatabase, inCluster} {
		for _, c := range list {
			besides = append(besides, c.name)
		}
	}
	return always, besides
}
