//! Tickets: what an exporter hands out in place of the driver's descriptor.
