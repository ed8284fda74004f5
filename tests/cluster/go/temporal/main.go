// A Temporal server from its Go module with its state in one SQLite file, or in memory, and beside it a worker that the tests
// start workflows on. One process, so that a test that kills it has killed all of it: with a file, another one that is started
// on the same port goes on where it was.
//
//	temporal --port 7233 [--database FILE] [--certificate FILE --key FILE --authority FILE]
//
// It prints "ready" when the server answers and the worker polls, and ends when its standard input does, so that it never
// outlives the test that started it. With more words it asks such a server for something:
//
//	temporal --port 7233 start | finish | terminate | status ID
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	failures "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/testing/freeport"
	"go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
)

const (
	host      = "127.0.0.1"
	namespace = "default"
	taskQueue = "agents"
	// How long the server may take to answer for the first time.
	startMax = 60 * time.Second
)

type options struct {
	port                        int
	database                    string
	certificate, key, authority string
}

func main() {
	var given options
	flag.IntVar(&given.port, "port", 0, "where the server listens, on "+host)
	flag.StringVar(&given.database, "database", "", "the file that keeps the state; in memory without it")
	flag.StringVar(&given.certificate, "certificate", "", "the server's certificate, for TLS")
	flag.StringVar(&given.key, "key", "", "the key of that certificate")
	flag.StringVar(&given.authority, "authority", "", "whose certificates clients have to have; the server's is of it too")
	flag.Parse()
	if err := run(given); err != nil {
		fmt.Fprintln(os.Stderr, "temporal:", err)
		os.Exit(1)
	}
}

func run(given options) error {
	if given.port == 0 || (flag.NArg() != 0 && flag.NArg() != 2) {
		return errors.New("usage: temporal --port PORT [--database FILE] [--certificate FILE --key FILE --authority FILE] [WORD ID]")
	}
	if flag.NArg() == 2 {
		return ask(given, flag.Arg(0), flag.Arg(1))
	}
	server, err := newServer(given)
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return fmt.Errorf("the server does not start: %w", err)
	}
	connection, err := connect(given)
	if err != nil {
		return err
	}
	hand := worker.New(connection, taskQueue, worker.Options{WorkflowPanicPolicy: worker.FailWorkflow})
	hand.RegisterWorkflowWithOptions(agent, workflow.RegisterOptions{Name: "Agent"})
	if err := hand.Start(); err != nil {
		return fmt.Errorf("the worker does not start: %w", err)
	}
	fmt.Println("ready")
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended <- syscall.SIGTERM
	}()
	// Nobody needs what an orderly end would take seconds for.
	<-ended
	return nil
}

func newServer(given options) (temporal.Server, error) {
	sql := config.SQL{
		PluginName:        sqliteplugin.PluginName,
		DatabaseName:      given.database,
		ConnectAttributes: map[string]string{"mode": "rwc"},
	}
	_, missing := os.Stat(given.database)
	if given.database == "" {
		sql.DatabaseName = "jangar"
		sql.ConnectAttributes = map[string]string{"mode": "memory", "cache": "shared"}
	} else if errors.Is(missing, os.ErrNotExist) {
		if err := sqlite.SetupSchema(&sql); err != nil {
			return nil, fmt.Errorf("%s cannot be set up: %w", given.database, err)
		}
	}
	space, err := sqlite.NewNamespaceConfig("active", namespace, false, map[string]enums.IndexedValueType{})
	if err != nil {
		return nil, err
	}
	if err := sqlite.CreateNamespaces(&sql, space); err != nil {
		return nil, fmt.Errorf("the namespace %s cannot be made: %w", namespace, err)
	}
	settings, err := settingsOf(given, &sql)
	if err != nil {
		return nil, err
	}
	// What keeps it from starting is returned, and the rest would fill the output of a test.
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Stdout: false, Level: "fatal"}))
	authorizer, err := authorization.GetAuthorizerFromConfig(&settings.Global.Authorization)
	if err != nil {
		return nil, err
	}
	mapper, err := authorization.GetClaimMapperFromConfig(&settings.Global.Authorization, logger)
	if err != nil {
		return nil, err
	}
	return temporal.NewServer(
		temporal.WithConfig(settings),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorizer),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return mapper }),
	)
}

// The ports of the four services and those by which they find each other, beside that of the frontend. They are kept with the
// database: a server remembers its members by their addresses, and waits for those that are gone.
func ports(database string) ([]int, error) {
	file := database + ".ports"
	var kept []int
	if text, err := os.ReadFile(file); database != "" && err == nil {
		err := json.Unmarshal(text, &kept)
		return kept, err
	}
	for range 7 {
		kept = append(kept, freeport.MustGetFreePort())
	}
	if database == "" {
		return kept, nil
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	return kept, os.WriteFile(file, text, 0o600)
}

func settingsOf(given options, sql *config.SQL) (*config.Config, error) {
	address := fmt.Sprintf("%s:%d", host, given.port)
	free, err := ports(given.database)
	if err != nil {
		return nil, fmt.Errorf("the ports cannot be chosen: %w", err)
	}
	if len(free) != 7 {
		return nil, fmt.Errorf("%s.ports has %d ports, and 7 are needed: remove it", given.database, len(free))
	}
	service := func(port, membership int) config.Service {
		return config.Service{RPC: config.RPC{GRPCPort: port, MembershipPort: membership, BindOnLocalHost: true}}
	}
	settings := &config.Config{
		Persistence: config.Persistence{
			DefaultStore:     sqliteplugin.PluginName,
			VisibilityStore:  sqliteplugin.PluginName,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{sqliteplugin.PluginName: {SQL: sql}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        "active",
			CurrentClusterName:       "active",
			ClusterInformation: map[string]cluster.ClusterInformation{
				"active": {Enabled: true, InitialFailoverVersion: 1, RPCAddress: address},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services: map[string]config.Service{
			"frontend": service(given.port, free[0]),
			"history":  service(free[1], free[2]),
			"matching": service(free[3], free[4]),
			"worker":   service(free[5], free[6]),
		},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: "disabled"},
			Visibility: config.VisibilityArchival{State: "disabled"},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
		}},
		PublicClient: config.PublicClient{HostPort: address},
	}
	settings.Global.Membership = config.Membership{MaxJoinDuration: startMax, BroadcastAddress: host}
	settings.Global.PProf = config.PProf{Port: freeport.MustGetFreePort()}
	if given.certificate != "" {
		settings.Global.TLS = config.RootTLS{
			Frontend: config.GroupTLS{
				Server: config.ServerTLS{
					CertFile: given.certificate, KeyFile: given.key,
					ClientCAFiles: []string{given.authority}, RequireClientAuth: true,
				},
				Client: config.ClientTLS{ServerName: "localhost", RootCAFiles: []string{given.authority}},
			},
			SystemWorker: config.WorkerTLS{
				CertFile: given.certificate, KeyFile: given.key,
				Client: config.ClientTLS{ServerName: "localhost", RootCAFiles: []string{given.authority}},
			},
		}
	}
	return settings, nil
}

// connect waits until the server answers.
func connect(given options) (client.Client, error) {
	options := client.Options{HostPort: fmt.Sprintf("%s:%d", host, given.port), Namespace: namespace, Logger: silent{}}
	if given.certificate != "" {
		pair, err := tls.LoadX509KeyPair(given.certificate, given.key)
		if err != nil {
			return nil, err
		}
		authority, err := os.ReadFile(given.authority)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority)
		options.ConnectionOptions.TLS = &tls.Config{
			ServerName: "localhost", RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		}
	}
	until, cancel := context.WithTimeout(context.Background(), startMax)
	defer cancel()
	for {
		connection, err := client.DialContext(until, options)
		if err == nil {
			return connection, nil
		}
		if until.Err() != nil {
			return nil, fmt.Errorf("the server does not answer: %w", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// ask does what somebody else than Jangar would do to a workflow.
func ask(given options, word, id string) error {
	connection, err := connect(given)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startMax)
	defer cancel()
	switch word {
	case "start":
		work := map[string]any{"parameters": map[string]any{"behaviour": "work"}}
		_, err := connection.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: taskQueue}, "Agent", work)
		return err
	case "finish":
		return connection.SignalWorkflow(ctx, id, "", "finish", nil)
	case "terminate":
		return connection.TerminateWorkflow(ctx, id, "", "a test wants it")
	case "status":
		found, err := connection.DescribeWorkflowExecution(ctx, id, "")
		if err != nil {
			return err
		}
		fmt.Println(found.GetWorkflowExecutionInfo().GetStatus())
		return nil
	default:
		return fmt.Errorf("the word %q is none of start, finish, terminate and status", word)
	}
}

// silent keeps the worker from filling the output of a test with what it does.
type silent struct{}

var _ sdklog.Logger = silent{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}

// agent does what the parameter `behaviour` of the run says.
func agent(ctx workflow.Context, document map[string]any) (map[string]any, error) {
	parameters, _ := document["parameters"].(map[string]any)
	finish := workflow.GetSignalChannel(ctx, "finish")
	done := map[string]any{"summary": "mended", "outputs": map[string]any{"received": document}}
	switch behaviour := parameters["behaviour"]; behaviour {
	case "succeed":
		return done, nil
	case "fail":
		return nil, failures.NewNonRetryableApplicationError("two tests are red", "TestsRed", nil)
	// Works until it is told to finish, or to stop.
	case "work":
		selector := workflow.NewSelector(ctx)
		selector.AddReceive(finish, func(channel workflow.ReceiveChannel, _ bool) { channel.Receive(ctx, nil) })
		selector.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {})
		selector.Select(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return done, nil
	// Is told to stop, and works on until it is told to finish.
	case "finish anyway":
		deaf, _ := workflow.NewDisconnectedContext(ctx)
		finish.Receive(deaf, nil)
		return done, nil
	case "continue as new":
		parameters["behaviour"] = "succeed"
		return nil, workflow.NewContinueAsNewError(ctx, "Agent", document)
	default:
		return nil, failures.NewNonRetryableApplicationError(fmt.Sprintf("behaviour is %v", behaviour), "UnknownBehaviour", nil)
	}
}
