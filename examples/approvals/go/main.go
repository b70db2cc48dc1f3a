// Decide what jobs of Loom ask, from a workflow that knows Temporal and nothing of Loom.
//
// Its own condition is a change window: when somebody opens one, the call is approved; when nobody does in time, it is
// rejected, and the model reads why.
//
//	go build -o window . && ./window worker                # run such workflows
//	loom worker --on-approval './window notice'            # start one for each question, here with eight hours
//	temporal workflow signal --workflow-id window-APPROVAL --name open --input '"ann"'
//	temporal workflow result --workflow-id window-APPROVAL
//
// `notice 600` gives ten minutes. The server is the one that TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE name.
// ../workflow.py is the same in Python.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const (
	queue      = "change-windows"
	eightHours = 8 * 3600
)

// Question is what a job waits for: its id, the approval's, and how many seconds a window has to open.
type Question struct {
	Job      string  `json:"job"`
	Approval string  `json:"approval"`
	Patience float64 `json:"patience"`
}

// Outcome is what was decided, and what became of it. settled: the question is closed. late: it was closed before, and
// nothing was sent. open: it still waits, because this was refused or others must agree.
type Outcome struct {
	Choice string `json:"choice"`
	Became string `json:"became"`
}

// Decision is what Loom takes; see docs/reference/decisions.md.
type Decision struct {
	ApprovalID string `json:"approval_id"`
	Choice     string `json:"choice"`
	Message    string `json:"message"`
	By         string `json:"by"`
}

// ChangeWindow is the workflow: one question.
func ChangeWindow(ctx workflow.Context, question Question) (Outcome, error) {
	opened := workflow.GetSignalChannel(ctx, "open")
	decision := Decision{ApprovalID: question.Approval, By: "the change window"}
	patience := time.Duration(question.Patience * float64(time.Second))
	var by string
	if ok, _ := opened.ReceiveWithTimeout(ctx, patience, &by); ok {
		decision.Choice, decision.Message = "approve", "opened by "+by
	} else {
		decision.Choice, decision.Message = "reject", "no change window opened in time"
	}
	became, err := send(ctx, question, decision)
	return Outcome{Choice: decision.Choice, Became: became}, err
}

func send(ctx workflow.Context, question Question, decision Decision) (string, error) {
	if open, err := isOpen(ctx, question); err != nil || !open {
		return "late", err
	}
	signal := workflow.SignalExternalWorkflow(ctx, question.Job, "", "loom.decision", decision)
	if err := signal.Get(ctx, nil); err != nil { // the job has ended since
		return "late", nil
	}
	// A signal has no answer: look whether the question is closed now.
	for range 3 {
		if open, err := isOpen(ctx, question); err != nil || !open {
			return "settled", err
		}
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return "", err
		}
	}
	return "open", nil
}

func isOpen(ctx workflow.Context, question Question) (bool, error) {
	// Tried again for as long as no worker of Loom is up to answer.
	options := workflow.ActivityOptions{StartToCloseTimeout: 20 * time.Second}
	var open bool
	call := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), "is_open", question)
	return open, call.Get(ctx, &open)
}

// Jobs has what activities need to ask a job.
type Jobs struct{ client client.Client }

// IsOpen asks the job whether the question still waits.
func (jobs *Jobs) IsOpen(ctx context.Context, question Question) (bool, error) {
	described, err := jobs.client.DescribeWorkflowExecution(ctx, question.Job, "")
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if described.WorkflowExecutionInfo.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return false, nil
	}
	within, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	answer, err := jobs.client.QueryWorkflow(within, question.Job, "", "loom.status")
	if err != nil {
		return false, err
	}
	var status struct {
		Approvals []struct {
			ID string `json:"approval_id"`
		} `json:"approvals"`
	}
	if err := answer.Get(&status); err != nil {
		return false, err
	}
	for _, asked := range status.Approvals {
		if asked.ID == question.Approval {
			return true, nil
		}
	}
	return false, nil
}

func work(temporal client.Client) error {
	windows := worker.New(temporal, queue, worker.Options{})
	windows.RegisterWorkflowWithOptions(ChangeWindow, workflow.RegisterOptions{Name: "change-window"})
	windows.RegisterActivityWithOptions((&Jobs{temporal}).IsOpen, activity.RegisterOptions{Name: "is_open"})
	if err := windows.Start(); err != nil {
		return err
	}
	defer windows.Stop()
	fmt.Println("ready")
	<-worker.InterruptCh()
	return nil
}

// begin starts a workflow for a notice. It may come again: then the workflow is there already.
func begin(temporal client.Client, patience float64) error {
	var notice struct {
		Job      string `json:"job"`
		Approval string `json:"approval_id"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&notice); err != nil {
		return err
	}
	options := client.StartWorkflowOptions{
		ID:                       "window-" + notice.Approval,
		TaskQueue:                queue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
	}
	question := Question{Job: notice.Job, Approval: notice.Approval, Patience: patience}
	_, err := temporal.ExecuteWorkflow(context.Background(), options, "change-window", question)
	return err
}

func main() {
	if len(os.Args) < 2 || (os.Args[1] != "worker" && os.Args[1] != "notice") {
		log.Fatal("window worker | window notice [SECONDS]")
	}
	temporal, err := client.Dial(envconfig.MustLoadDefaultClientOptions())
	if err != nil {
		log.Fatal(err)
	}
	defer temporal.Close()
	if os.Args[1] == "worker" {
		err = work(temporal)
	} else {
		patience := float64(eightHours)
		if len(os.Args) > 2 {
			if patience, err = strconv.ParseFloat(os.Args[2], 64); err != nil {
				log.Fatal(err)
			}
		}
		err = begin(temporal, patience)
	}
	if err != nil {
		log.Fatal(err)
	}
}
