//! One request: who, how often, what goes wrong, what it does, what is said.

use super::{Reply, Request, Sim};
use crate::actions::{self, Call};
use crate::delivery::Delivery;
use crate::error::{ApiError, ApiResult};
use crate::fault::{Body, Fault, Garble, Loss};
use crate::iam::Caller;
use crate::ids::Ids;
use crate::journal::{Entry, printable};
use crate::statistics::Ended;
use crate::sts;
use crate::time::Millis;
use crate::wire::credential::Credential;
use crate::wire::query::Params;
use crate::wire::xml;
use std::time::{Duration, Instant};

/// Which service is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Ec2,
    Sts,
}

/// What faults do to the outcome and the reply.
#[derive(Debug, Default)]
struct Plan {
    /// Do not run the action.
    suppressed: bool,
    /// Answer this instead.
    instead: Option<(ApiError, Body)>,
    garble: Option<Garble>,
    delivery: Delivery,
    retry_after_ms: Option<u64>,
    duplicate_ms: Option<u64>,
    throttled: bool,
}

impl Sim {
    /// Answers a request at a time. The change that it makes, if any, is on disk when this returns.
    pub fn handle(&mut self, now: Millis, request: &Request) -> Reply {
        self.settle(now);
        self.answer(now, request, "sdk")
    }

    pub(super) fn answer(&mut self, now: Millis, request: &Request, origin: &'static str) -> Reply {
        let started = Instant::now();
        let params = Params::parse(&request.form);
        let action = params.peek("Action").unwrap_or("").to_owned();
        let credential = Credential::parse(
            request.authorization.as_deref(),
            params.peek("X-Amz-Credential"),
        );
        let service = service(&params, credential.as_ref(), &action);
        let request_id = Ids::request_id(&mut self.request_ids);
        let delay_ms = self.latency.api(&action);
        let mut level = 0.0;
        let mut effects = Vec::new();
        let mut struck = Vec::new();
        let mut plan = Plan::default();

        let front = self.front_door(now, request, &params, credential.as_ref(), &action, service);
        let realm = front.as_ref().map_or(0, |f| f.0);
        let result = front.and_then(|(realm, caller)| {
            if service == Service::Ec2 {
                let unfiltered = action.starts_with("Describe") && actions::unfiltered(&params);
                let taken = self.realms[realm]
                    .buckets
                    .take(&self.limits, &action, unfiltered, now);
                level = taken.level;
                if !taken.granted {
                    plan.throttled = true;
                    return Err(ApiError::throttled());
                }
            }
            struck = self.faults.strike(&action, &params, now);
            let faults: Vec<Fault> = struck.iter().map(|(_, f)| f.clone()).collect();
            plan = plan_of(&faults);
            if plan.suppressed {
                return Err(ApiError::new(
                    500,
                    "InternalError",
                    "An internal error has occurred",
                ));
            }
            let begin = now.plus(delay_ms);
            if service == Service::Sts {
                return sts::answer(sts::Asked {
                    action: &action,
                    params: &params,
                    account: &self.realms[realm].account,
                    caller: caller.as_ref(),
                    iam: &self.iam,
                    random: &mut self.request_ids,
                    now,
                });
            }
            let Some(caller) = &caller else {
                return Err(ApiError::bad_credentials());
            };
            let mut call = Call {
                now,
                begin,
                action: &action,
                params: &params,
                realm: &mut self.realms[realm],
                ids: &mut self.ids,
                latency: &mut self.latency,
                devices: &mut *self.devices,
                faults: &faults,
                caller,
                iam: &self.iam,
                rules: &self.rules,
                effects: Vec::new(),
            };
            let result = actions::dispatch(&mut call);
            effects = call.effects;
            result
        });
        self.commit(now);
        if let Some(after) = plan.duplicate_ms
            && origin != "duplicate"
        {
            self.redelivered += 1;
            let key = (now.plus(after), self.redelivered);
            self.redeliveries.insert(key, request.clone());
        }
        let mut body_form = Body::Xml;
        let result = match plan.instead.take() {
            Some((error, form)) => {
                body_form = form;
                Err(error)
            }
            None => result,
        };
        let mut reply = render(&action, service, &request_id, &result, body_form);
        reply.delay_ms = delay_ms;
        reply.delivery = plan.delivery;
        reply.retry_after_ms = plan.retry_after_ms;
        garble(&mut reply, plan.garble, &action);

        let code = result.as_ref().err().map(|e| e.code.clone());
        let work = started.elapsed();
        self.statistics.add(
            if action.is_empty() { "(none)" } else { &action },
            &Ended {
                code: code.as_deref(),
                throttled: plan.throttled,
                faulted: !struck.is_empty(),
                server_ms: Duration::from_millis(delay_ms).as_secs_f64() * 1000.0
                    + work.as_secs_f64() * 1000.0,
                work_us: work.as_secs_f64() * 1e6,
            },
        );
        let realm = &self.realms[realm];
        self.journal.add(Entry {
            seq: 0,
            at: now.iso(),
            account: realm.account.clone(),
            region: realm.region.clone(),
            action,
            invocation: request.invocation.clone(),
            attempt: request.attempt.clone(),
            access_key: credential.map(|c| c.access_key),
            parameters: params
                .pairs()
                .filter(|(k, _)| !matches!(*k, "Action" | "Version"))
                .map(|(k, v)| (k.to_owned(), printable(k, v)))
                .collect(),
            request_id,
            status: reply.status,
            code,
            effects,
            bucket: (level * 10.0).round() / 10.0,
            delay_ms,
            faults: struck.into_iter().map(|(id, _)| id).collect(),
            origin,
        });
        reply
    }

    /// Credentials, version and action. Answers the realm's index and who calls; nobody does with a web identity. Codes and wordings unverified but for InvalidAction.
    fn front_door(
        &self,
        now: Millis,
        request: &Request,
        params: &Params,
        credential: Option<&Credential>,
        action: &str,
        service: Service,
    ) -> ApiResult<(usize, Option<Caller>)> {
        if action.is_empty() {
            return Err(ApiError::client(
                "MissingAction",
                "The request must contain the parameter Action",
            ));
        }
        let version = match service {
            Service::Ec2 => "2016-11-15",
            Service::Sts => "2011-06-15",
        };
        match params.peek("Version") {
            Some(v) if v == version => {}
            Some(v) => {
                return Err(ApiError::client(
                    "NoSuchVersion",
                    format!("The requested version ({v}) of service is not valid."),
                ));
            }
            None => {
                return Err(ApiError::client(
                    "MissingParameter",
                    "The request must contain the parameter Version",
                ));
            }
        }
        if service == Service::Ec2 && !actions::known(action) {
            return Err(actions::invalid_action(action));
        }
        let Some(c) = credential else {
            return if action == "AssumeRoleWithWebIdentity" {
                Ok((0, None))
            } else {
                Err(ApiError::bad_credentials())
            };
        };
        let token = request
            .session_token
            .as_deref()
            .or_else(|| params.peek("X-Amz-Security-Token"));
        let caller = self.iam.caller(c, token, now).map_err(|e| match service {
            Service::Ec2 => e,
            Service::Sts => sts::of_credentials(&e),
        })?;
        let known = |account: &&String| self.realms.iter().any(|r| r.account == **account);
        let account = caller
            .account
            .as_ref()
            .filter(known)
            .or_else(|| self.keys.get(&c.access_key))
            .unwrap_or(&self.realms[0].account)
            .clone();
        self.realms
            .iter()
            .position(|r| {
                r.account == account && (service == Service::Sts || r.region == c.region)
            })
            .map(|realm| (realm, Some(caller)))
            .ok_or_else(|| {
                ApiError::new(
                    401,
                    "AuthFailure",
                    format!(
                        "Credential should be scoped to a valid region, not '{}': account {account} has no such region in the scenario",
                        c.region
                    ),
                )
            })
    }
}

fn service(params: &Params, credential: Option<&Credential>, action: &str) -> Service {
    let by_scope = credential.is_some_and(|c| c.service == "sts");
    let by_version = params.peek("Version") == Some("2011-06-15");
    if by_scope || by_version || sts::ACTIONS.contains(&action) {
        Service::Sts
    } else {
        Service::Ec2
    }
}

fn plan_of(faults: &[Fault]) -> Plan {
    let mut plan = Plan::default();
    for fault in faults {
        match fault {
            Fault::Error {
                code,
                status,
                message,
                body,
                effect,
            } => {
                plan.suppressed |= !effect;
                plan.instead = Some((ApiError::new(*status, code, message.clone()), *body));
            }
            Fault::Throttle { retry_after_ms } => {
                plan.suppressed = true;
                plan.throttled = true;
                plan.retry_after_ms = *retry_after_ms;
                plan.instead = Some((ApiError::throttled(), Body::Xml));
            }
            Fault::LoseReply {
                how,
                effect,
                hold_ms,
            } => {
                plan.suppressed |= !effect;
                plan.delivery = match how {
                    Loss::Hang => Delivery::Hang(Duration::from_millis(*hold_ms)),
                    Loss::Close => Delivery::Close,
                    Loss::Reset => Delivery::Reset,
                };
            }
            Fault::Garble { how, effect } => {
                plan.suppressed |= !effect;
                plan.garble = Some(*how);
            }
            Fault::Slow {
                first_byte_ms,
                byte_ms,
            } => {
                plan.delivery = Delivery::Slow {
                    first: Duration::from_millis(*first_byte_ms),
                    between: Duration::from_millis(*byte_ms),
                };
            }
            Fault::Duplicate { after_ms } => plan.duplicate_ms = Some(*after_ms),
            // These shape the action itself.
            Fault::StuckAttach { .. }
            | Fault::SkewAttach { .. }
            | Fault::StuckDetach { .. }
            | Fault::FailCreate { .. }
            | Fault::FailSnapshot { .. }
            | Fault::FailModify { .. }
            | Fault::Unsuccessful { .. }
            | Fault::EmptyPage {}
            | Fault::ExpireToken {} => {}
        }
    }
    plan
}

fn render(
    action: &str,
    service: Service,
    request_id: &str,
    result: &ApiResult<String>,
    form: Body,
) -> Reply {
    let (status, body) = match (result, service) {
        (Ok(members), Service::Ec2) => (200, xml::ec2_response(action, request_id, members)),
        (Ok(members), Service::Sts) => (200, xml::sts_response(action, request_id, members)),
        (Err(e), Service::Ec2) => (e.status, xml::ec2_error(&e.code, &e.message, request_id)),
        (Err(e), Service::Sts) => (e.status, xml::sts_error(&e.code, &e.message, request_id)),
    };
    let (content_type, body) = match form {
        Body::Xml if service == Service::Sts => ("text/xml", body),
        Body::Xml => ("text/xml;charset=UTF-8", body),
        Body::Html => (
            "text/html",
            format!(
                "<html><head><title>{status}</title></head><body><h1>{status}</h1></body></html>"
            ),
        ),
        Body::Empty => ("text/plain", String::new()),
    };
    Reply {
        status,
        content_type,
        request_id: request_id.to_owned(),
        retry_after_ms: None,
        body: body.into_bytes(),
        delay_ms: 0,
        delivery: Delivery::Normal,
    }
}

fn garble(reply: &mut Reply, how: Option<Garble>, action: &str) {
    let Some(how) = how else { return };
    reply.status = 200;
    match how {
        Garble::Unparsable => reply.body = b"}{ this is not XML <".to_vec(),
        Garble::Empty => reply.body.clear(),
        Garble::WrongRoot => {
            reply.body = format!(
                "<Not{action}Response><requestId>{}</requestId></Not{action}Response>",
                reply.request_id
            )
            .into_bytes();
        }
        Garble::Cut => {
            let half = reply.body.len() * 2 / 3;
            reply.body.truncate(half);
        }
        Garble::Short => reply.delivery = Delivery::Short,
    }
}
