// Package nginxrules makes rules of the limit_req and limit_conn directives of an nginx
// configuration, and notes where the rules differ from nginx and which limits they do not keep.
package nginxrules
