// Package chart proves the Helm chart of Slipway.
package chart
