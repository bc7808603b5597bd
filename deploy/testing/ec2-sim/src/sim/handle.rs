//! One request: the caller, the limits, the faults, the action and the reply.

use super::fault_effects::{Delivery, FaultEffects, garble};
use super::journal::{Entry, printable};
use super::{Reply, Request, Sim};
use crate::actions::{self, Call};
use crate::faults::{Body, Fault};
use crate::iam::{Caller, sts};
use crate::state::Ids;
use crate::time::Millis;
use crate::wire::{ApiError, ApiResult, Credential, Params, check_time, query, refuse, xml};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Ec2,
    Sts,
}

/// What the simulator learns while it answers a request.
#[derive(Debug, Default)]
struct Notes {
    effects: Vec<String>,
    applied: Vec<(String, Fault)>,
    fault_effects: FaultEffects,
}

/// A request that arrives at `now`, with what its parameters and its signature say.
struct Incoming<'a> {
    now: Millis,
    request: &'a Request,
    origin: &'static str,
    action: &'a str,
    params: &'a Params,
    credential: Option<&'a Credential>,
    service: Service,
    delay_ms: u64,
}

impl Sim {
    /// Answers a request that arrives at `now`. When this function returns, any change that the
    /// request makes is on disk.
    pub fn handle(&mut self, now: Millis, request: &Request) -> Reply {
        self.settle(now);
        self.answer(now, request, "sdk")
    }

    pub(super) fn answer(&mut self, now: Millis, request: &Request, origin: &'static str) -> Reply {
        let params = &Params::parse(&request.form);
        let action = params.peek("Action").unwrap_or("");
        let credential = request.authorization.as_deref().and_then(Credential::parse);
        let credential = credential.as_ref();
        let service = service(params, credential, action);
        let request_id = Ids::request_id(&mut self.request_ids);
        let delay_ms = self.latency.api(action);
        let incoming =
            Incoming { now, request, origin, action, params, credential, service, delay_ms };
        let mut notes = Notes::default();
        let caller = self.authenticate(&incoming);
        let result = caller.and_then(|caller| self.perform(&incoming, &caller, &mut notes));
        self.commit(now);
        self.schedule_consequences(&incoming, &notes);
        let (result, form) = match notes.fault_effects.instead.take() {
            Some((error, form)) => (Err(error), form),
            None => (result, Body::Xml),
        };
        let mut reply = render(action, service, &request_id, &result, form);
        reply.delay_ms = delay_ms;
        reply.delivery = notes.fault_effects.delivery;
        reply.retry_after_ms = notes.fault_effects.retry_after_ms;
        garble(&mut reply, notes.fault_effects.garble, action);

        let code = result.err().map(|e| e.code);
        let counted = if action.is_empty() { "(none)" } else { action };
        self.statistics.add(counted, code.as_deref(), notes.fault_effects.throttled);
        self.journal.add(Entry {
            seq: 0,
            at: now.iso(),
            account: self.realm.account.clone(),
            region: self.realm.region.clone(),
            action: action.to_owned(),
            access_key: credential.map(|c| c.access_key.clone()),
            parameters: params
                .pairs()
                .filter(|(k, _)| !matches!(*k, "Action" | "Version"))
                .map(|(k, v)| (k.to_owned(), printable(k, v)))
                .collect(),
            request_id,
            status: reply.status,
            code,
            effects: notes.effects,
            delay_ms,
            faults: notes.applied.into_iter().map(|(id, _)| id).collect(),
            origin,
        });
        reply
    }

    fn perform(
        &mut self,
        u: &Incoming<'_>,
        caller: &Caller,
        notes: &mut Notes,
    ) -> ApiResult<String> {
        if u.service == Service::Ec2 {
            let unfiltered = u.action.starts_with("Describe") && query::unfiltered(u.params);
            let buckets = &mut self.realm.buckets;
            if !buckets.take(&self.limits, u.action, unfiltered, u.now) {
                notes.fault_effects.throttled = true;
                return Err(ApiError::throttled());
            }
        }
        // Rules apply to the client's requests and to their duplicates, not to the calls of other
        // users.
        if u.origin != "foreign" {
            notes.applied = self.faults.apply(u.action, u.params, u.now);
        }
        let faults: Vec<Fault> = notes.applied.iter().map(|(_, f)| f.clone()).collect();
        notes.fault_effects = FaultEffects::of(&faults);
        if u.origin == "sdk" {
            self.send_earlier_foreign_calls(u.now, u.params, &faults);
        }
        if notes.fault_effects.suppressed {
            return Err(ApiError::new(500, "InternalError", "An internal error has occurred"));
        }
        if u.service == Service::Sts {
            let (iam, account) = (&mut self.iam, &self.realm.account);
            return sts::answer(iam, u.now, u.action, u.params, account, caller);
        }
        let answer = actions::handler(u.action)?;
        let realm = &mut self.realm;
        realm.check_zones(u.action, u.params)?;
        let stale_ms = notes.fault_effects.stale_ms;
        let view = match u.action.starts_with("Describe") {
            true => self.consistency.view(u.action, u.params, stale_ms),
            false => None,
        };
        let current = view.map(|v| realm.show_view(u.now, &v));
        let mut call = Call {
            now: u.now,
            begin: u.now.plus(u.delay_ms),
            action: u.action,
            params: u.params,
            realm,
            ids: &mut self.ids,
            latency: &mut self.latency,
            devices: self.devices.as_ref(),
            faults: &faults,
            caller,
            iam: &self.iam,
            quotas: &self.quotas,
            effects: Vec::new(),
        };
        let result = answer(&mut call);
        notes.effects = call.effects;
        if let Some(current) = current {
            self.realm.restore_current(current);
        }
        result
    }

    /// Schedules what the request's faults cause afterwards: the duplicate of the request, and the
    /// calls of other users.
    fn schedule_consequences(&mut self, u: &Incoming<'_>, notes: &Notes) {
        if let Some(after) = notes.fault_effects.duplicate_ms
            && u.origin != "duplicate"
        {
            self.schedule(u.now.plus(after), u.request.clone(), "duplicate");
        }
        if u.origin != "sdk" {
            return;
        }
        for (_, fault) in &notes.applied {
            if let Fault::Foreign { action, parameters, after_ms: Some(after) } = fault {
                let made = notes.effects.first().map(String::as_str);
                let call = self.foreign_request(action, parameters, Some(u.params), made);
                self.schedule(u.now.plus(*after), call, "foreign");
            }
        }
    }

    fn schedule(&mut self, at: Millis, request: Request, origin: &'static str) {
        self.planned += 1;
        self.scheduled.insert((at, self.planned), (request, origin));
    }

    /// Makes the calls of other users that take effect just before a request.
    fn send_earlier_foreign_calls(&mut self, now: Millis, params: &Params, faults: &[Fault]) {
        for fault in faults {
            if let Fault::Foreign { action, parameters, after_ms: None } = fault {
                let call = self.foreign_request(action, parameters, Some(params), None);
                self.answer(now, &call, "foreign");
                // The immediate effects of the call are complete before the request is processed.
                self.settle(now);
            }
        }
    }

    /// Checks credentials, version and action, and returns the caller. All codes and wordings but
    /// those of InvalidAction are unverified.
    fn authenticate(&self, u: &Incoming<'_>) -> ApiResult<Caller> {
        if u.action.is_empty() {
            refuse!("MissingAction", "The request must contain the parameter Action");
        }
        let version = match u.service {
            Service::Ec2 => "2016-11-15",
            Service::Sts => "2011-06-15",
        };
        let given = u.params.peek("Version").ok_or_else(|| ApiError::missing("Version"))?;
        if given != version {
            refuse!("NoSuchVersion", "The requested version ({given}) of service is not valid.");
        }
        match u.service {
            Service::Ec2 => _ = actions::handler(u.action)?,
            Service::Sts if u.action == sts::WITH_TOKEN => return Ok(Caller::default()),
            Service::Sts => {}
        }
        let c = u.credential.ok_or_else(ApiError::bad_credentials)?;
        if let Some(date) = &u.request.date {
            check_time(date, u.now)?;
        }
        let (account, region) = (&self.realm.account, &c.region);
        if u.service == Service::Ec2 && *region != self.realm.region {
            let message = format!(
                "Credential should be scoped to a valid region, not '{region}': account {account} has no such region in the scenario"
            );
            return Err(ApiError::new(401, "AuthFailure", message));
        }
        self.iam.caller(c, u.now)
    }
}

fn service(params: &Params, credential: Option<&Credential>, action: &str) -> Service {
    let by_scope = credential.is_some_and(|c| c.service == "sts");
    let by_version = params.peek("Version") == Some("2011-06-15");
    if by_scope || by_version || action == sts::ACTION { Service::Sts } else { Service::Ec2 }
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
