package nginxrules

// note says what differs without a limit being lost.
func (c *converter) note(d *Directive, format string, args ...any) {
	c.notes.Say(d.where(), format, args...)
}

// lose says which limit is not kept.
func (c *converter) lose(d *Directive, format string, args ...any) {
	c.notes.Lose(d.where(), format, args...)
}
