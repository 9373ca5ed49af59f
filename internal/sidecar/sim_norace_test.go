//go:build !race

package sidecar

const simDefaultSeeds = 200
