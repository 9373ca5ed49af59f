// Package alerts proves the alerts of the Helm chart with the engine of Prometheus.
package alerts
