// Package dashboard makes what operators load into other programs: a dashboard for
// Grafana, alert rules for Prometheus, and the runbook that the alerts link to.
// They are written by
//
//	go run ./internal/service/dashboard/write ../deploy ../docs
//
// and checked in; a test holds the files to this package.
package dashboard
