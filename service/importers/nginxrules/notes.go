package nginxrules

// note notes a difference that loses no limit.
func (c *converter) note(d *Directive, format string, args ...any) {
	c.notes.Say(d.where(), format, args...)
}

// lose notes a limit that is not kept.
func (c *converter) lose(d *Directive, format string, args ...any) {
	c.notes.Lose(d.where(), format, args...)
}
