package lab

// A Shape is a way in which requests arrive.
type Shape struct {
	Name       string      `json:"name"`
	Title      string      `json:"title"`
	About      string      `json:"about"`
	Parameters []Parameter `json:"parameters"`

	make func(*Arrivals, *traffic) error
}

// A Parameter is a field of [Arrivals] that a shape has.
type Parameter struct {
	Name  string `json:"name"`
	Label string `json:"label"`
	// Type is rate, count, duration, seed, flag, text or list.
	Type string `json:"type"`
}

var (
	rateParameter = Parameter{"rate", "Rate", "rate"}
	sizeParameter = Parameter{"size", "Requests in a burst", "count"}
)

// shapes are all shapes, in the order in which the page offers them.
var shapes = []Shape{
	{"edge", "Edge of a window", "A burst just before a window's edge and one just after it; a period later, two periods at a rate.", []Parameter{
		sizeParameter, {"gap", "From burst to burst", "duration"}, rateParameter, {"period", "From edge to edge", "duration"},
	}, (*Arrivals).edge},
	{"steady", "Steady", "One request after another, at an even pace.", []Parameter{rateParameter}, (*Arrivals).steady},
	{"burst", "Bursts", "Many at one instant, again and again.", []Parameter{
		sizeParameter, {"every", "From burst to burst", "duration"},
	}, (*Arrivals).bursts},
	{"onoff", "On and off", "A stretch at a rate, then nothing for a while, again and again.", []Parameter{
		rateParameter, {"on", "On for", "duration"}, {"off", "Off for", "duration"},
	}, (*Arrivals).onOff},
	{"poisson", "Random", "Many clients that know nothing of one another: a Poisson process. The same seed gives the same requests.", []Parameter{
		rateParameter, {"seed", "Seed", "seed"},
	}, (*Arrivals).poisson},
	{"hammer", "Hammering client", "One client that sends one request after another; a denied one it sends again a moment later, until it passes.", []Parameter{
		rateParameter, {"gap", "Until it tries again", "duration"},
	}, (*Arrivals).hammer},
	{"polite", "Polite client", "One client that sends one request after another; after a denial it waits as long as retry after says.", []Parameter{rateParameter}, (*Arrivals).polite},
	{"several", "Several clients", "Clients that each send at an even pace, the first at a rate of its own. With a key each, one does not feel the others; with one key they share.", []Parameter{
		{"clients", "Clients", "count"}, {"rate", "Rate of the first", "rate"}, {"other", "Rate of each other", "rate"}, {"shared", "All have one key", "flag"},
	}, (*Arrivals).several},
	{"draw", "Drawn by hand", "Draw how many requests come when.", []Parameter{
		{"cell", "Length of a cell", "duration"}, {"counts", "Requests in each cell", "list"},
	}, (*Arrivals).drawn},
	{"text", "Phases as text", "Phases one after another, as stint simulate has them: 10@1/s is ten requests at one a second, 20@once twenty at one instant, +5s a pause.", []Parameter{
		{"text", "Phases", "text"},
	}, (*Arrivals).phases},
	{"list", "A list", "Given times, costs and keys.", []Parameter{
		{"times", "Times", "list"}, {"costs", "Costs", "list"}, {"keys", "Keys", "list"},
	}, (*Arrivals).list},
}

// Shapes returns all shapes.
func Shapes() []Shape { return shapes }

func shapeNames() []string {
	names := make([]string, len(shapes))
	for i, s := range shapes {
		names[i] = s.Name
	}
	return names
}
