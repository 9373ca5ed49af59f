// A module of its own, for tests only: it pins the version of a JSON library that has
// GHSA-q382-vc8q-7jhj, as servers in the wild do, while everything else of this
// repository uses one that has not. Do not update it.
module github.com/slipway-mcp/slipway/internal/rpc/testdata/segmentio

go 1.26.0

require github.com/segmentio/encoding v0.5.3

require (
	github.com/segmentio/asm v1.1.3 // indirect
	golang.org/x/sys v0.0.0-20211110154304-99a53858aa08 // indirect
)
