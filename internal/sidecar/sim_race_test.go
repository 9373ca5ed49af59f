//go:build race

package sidecar

// The race detector makes a simulation about eight times as slow.
const simDefaultSeeds = 25
