// The kubectl that the tests drive kubelite with. It comes from its own Go module, so that a machine needs Go and nothing
// else to have exactly this version. scripts/tools.sh builds it and sets the version that it prints.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
